"""The node's end of exec, attach and port forwarding."""
