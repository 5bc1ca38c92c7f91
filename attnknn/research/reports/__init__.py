"""Reports as pages: sentences, tables and figures, as HTML, PDF, Markdown and LaTeX.

`collecting.collected` reads the reports below a folder. `tables`, `measurements`, `curves` and
`model` turn them into sections (`page.Section`), and `writing.write_report` writes the page
with its figures.
"""
