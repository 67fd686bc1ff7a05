"""The queue of Jobs: keeps them suspended while as many run as the limits allow."""
