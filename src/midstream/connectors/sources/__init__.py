"""Where rows come from besides folders of files."""
