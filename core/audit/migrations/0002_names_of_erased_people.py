from django.db import migrations

# Changed is only a row that has no place yet, and of it only that; or names and addresses go, as a person is erased.
# Taken away is only what the retention takes.
GUARD = """
CREATE OR REPLACE FUNCTION audit_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF OLD.sequence IS NULL AND to_jsonb(OLD) - ARRAY['sequence', 'previous', 'hash']
            = to_jsonb(NEW) - ARRAY['sequence', 'previous', 'hash'] THEN
            RETURN NEW;
        END IF;
        IF current_setting('glasshouse.audit_erasure', true) = 'on'
            AND to_jsonb(OLD) - ARRAY['actor_name', 'token_name', 'object_name', 'address']
            = to_jsonb(NEW) - ARRAY['actor_name', 'token_name', 'object_name', 'address']
            AND NEW.actor_name IN ('', OLD.actor_name) AND NEW.token_name IN ('', OLD.token_name)
            AND NEW.object_name IN ('', OLD.object_name) AND NEW.address IN ('', OLD.address) THEN
            RETURN NEW;
        END IF;
    ELSIF TG_OP = 'DELETE' AND current_setting('glasshouse.audit_retention', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'rows of the audit are never changed or deleted' USING ERRCODE = 'insufficient_privilege';
END $$;
"""
BEFORE = """
CREATE OR REPLACE FUNCTION audit_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF OLD.sequence IS NULL AND to_jsonb(OLD) - ARRAY['sequence', 'previous', 'hash']
            = to_jsonb(NEW) - ARRAY['sequence', 'previous', 'hash'] THEN
            RETURN NEW;
        END IF;
    ELSIF TG_OP = 'DELETE' AND current_setting('glasshouse.audit_retention', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'rows of the audit are never changed or deleted' USING ERRCODE = 'insufficient_privilege';
END $$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ("audit", "0001_initial"),
    ]

    operations = [
        migrations.RunSQL(GUARD, BEFORE),
    ]
