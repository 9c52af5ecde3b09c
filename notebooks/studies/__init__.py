"""What papers on sharing updates show, shown here: small runs with seeds, and a sentence each."""
