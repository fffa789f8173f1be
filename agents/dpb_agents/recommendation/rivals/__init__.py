"""Private linear bandits that the recommendation paper (RU) compares with."""
