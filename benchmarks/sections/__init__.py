"""What is measured, a file for each question. A section is a function (size, say) -> results that can be JSON."""
