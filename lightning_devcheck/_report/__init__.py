"""What is said: records, rules, the report and what draws it."""
