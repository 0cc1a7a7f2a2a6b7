"""The independent measurements of an audit: declared, measured, flow."""
