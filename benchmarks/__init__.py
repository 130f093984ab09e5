"""What produces the published numbers."""
