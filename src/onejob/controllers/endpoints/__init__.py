"""Controller of Endpoints and EndpointSlices, created with the first Service that selects Pods."""
