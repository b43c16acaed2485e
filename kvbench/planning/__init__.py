"""Planning: what a tier would be worth and how large it must be, from the simulator alone. Nothing is measured, no model is loaded."""
