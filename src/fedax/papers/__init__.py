"""The papers' wing: their experiments beside ours, and their theorems as tools. Nothing else imports it."""
