r"""Search in titles by owner, as 0040 did it for messages: a look-up reads what this person has of a word, whatever
everybody else's conversations are called. The index by it is built in 0061.
"""

from typing import ClassVar

from django.db import migrations

FORWARDS = r"""
CREATE FUNCTION chat_owned_title_words(owner uuid, title text) RETURNS tsvector
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 10000
BEGIN ATOMIC
    SELECT array_to_tsvector(array_agg(right(owner::text, 8) || left(word, 200)))
    FROM unnest(tsvector_to_array(chat_words(title))) AS word;
END;
CREATE FUNCTION chat_titles_with(whose uuid, asked tsquery) RETURNS SETOF uuid LANGUAGE sql STABLE STRICT ROWS 100
SET max_parallel_workers_per_gather = 0
BEGIN ATOMIC
    SELECT id FROM chat_conversation
    WHERE deleted IS NULL AND owner_id = whose
        AND chat_owned_title_words(owner_id, title) @@ chat_owned_query(whose, asked);
END;
"""
BACKWARDS = """
DROP FUNCTION chat_titles_with(uuid, tsquery);
DROP FUNCTION chat_owned_title_words(uuid, text);
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("chat", "0059_summaries_as_old_as_what_they_stand_in_for")]
    operations: ClassVar = [migrations.RunSQL(FORWARDS, BACKWARDS)]
