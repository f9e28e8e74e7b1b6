"""What the wings and the command share. It stands below both."""
