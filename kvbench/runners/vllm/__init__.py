"""Servers over HTTP: started, watched and stopped by kvbench, or running already. Everything that speaks HTTP is in here."""
