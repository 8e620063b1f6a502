"""Full-text search in messages and titles, by functions so that the index and the query cannot differ.

`chat_words` makes words comparable in every language: small letters, no accents (also đ becomes d), signs between
words gone, so that parts of names in code are words too, and each Chinese or Japanese character a word of its own.
`chat.models.words.fold` does the same to a query. The extension `unaccent` is not in every PostgreSQL.

The bodies are of the kind whose names are looked up once, since an index is built and restored with an empty search
path.

Reading a message costs a tenth of a millisecond, far more than any look-up in the index; the planner has to know.

100,000 characters are read: a tsvector has room for 1 MiB, and what does not fit would be an error at each write.
Answers that are being written are left out of the index: they are written anew each second.
"""

from typing import ClassVar

from django.db import migrations

FORWARDS = r"""
CREATE FUNCTION chat_words(said text) RETURNS tsvector LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN to_tsvector('pg_catalog.simple', regexp_replace(
        translate(
            normalize(regexp_replace(normalize(lower(left(said, 100000)), NFD), '[\u0300-\u036f]', '', 'g'), NFC),
            'đ_./\-:@#%&+=<>''’', 'd               '
        ),
        '([\u3040-\u30ff\u4e00-\u9fff])', ' \1 ', 'g'
    ));
CREATE FUNCTION chat_message_words(parts jsonb) RETURNS tsvector LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 10000
BEGIN ATOMIC
    SELECT chat_words(string_agg(said #>> '{}', E'\n\n'))
    FROM jsonb_path_query(parts, '$[*] ? (@.type == "text").text') AS said;
END;
CREATE INDEX message_words ON chat_message USING gin (chat_message_words(parts)) WHERE status <> 'pending';
CREATE INDEX conversation_title_words ON chat_conversation USING gin (chat_words(title)) WHERE deleted IS NULL;
"""
BACKWARDS = """
DROP INDEX conversation_title_words;
DROP INDEX message_words;
DROP FUNCTION chat_message_words(jsonb);
DROP FUNCTION chat_words(text);
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("chat", "0007_side_search_shares_imports")]
    operations: ClassVar = [migrations.RunSQL(FORWARDS, BACKWARDS)]
