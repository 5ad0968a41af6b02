"""What is asked of a running job from outside: queries come and change, columns arrive, forecasts, accounts."""
