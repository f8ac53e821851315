"""Programs run backwards: `inverse`, and `invertible`, whose backward pass reconstructs the values it needs."""
