"""Pictures for the README and the guide: `make screenshots` takes them into docs/pictures/.

1. `documents` makes the files of a law office from `texts/`: PDF, Word, Excel.
2. `office` fills an empty product through its API: people's conversations, personas, projects, tasks and a run.
   The model is scripted, so that each run shows the same answers.
3. `past` adds what only time brings: people, days of use, older conversations.
4. `pictures` opens pages in a browser and writes the pictures, `film` the moving one.
"""
