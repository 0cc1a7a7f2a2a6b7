"""Attention, characterised by its relations and symmetries."""
