"""The independent measurements of an audit: declared, kernel, flow."""
