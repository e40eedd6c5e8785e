"""The simulation against torch: values, accepted mixtures, and the reasons for differences."""
