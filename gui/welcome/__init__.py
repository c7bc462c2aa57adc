"""What greets where no run is on screen yet: what the machine offers, and the ways in."""
