"""Only test_*.py holds tests here: the other modules register targets, which must happen once."""

collect_ignore_glob = ["[!t]*.py", "targets*.py"]
