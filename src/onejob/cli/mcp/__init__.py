"""Model Context Protocol server: tools with which an agent inspects and runs Jobs."""
