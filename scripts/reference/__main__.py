from scripts.reference.pages import write_pages

for page in write_pages():
    print(page)
