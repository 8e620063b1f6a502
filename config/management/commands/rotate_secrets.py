from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.secret_rotation import rotate_secrets


class Command(BaseCommand):
    help = (
        "Encrypts every stored secret with the first key of ENCRYPTION_KEYS. Afterwards older keys are needed only for "
        "the audit and for earlier backups."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        lost = 0
        for figures in rotate_secrets():
            lost += figures.lost
            if figures.rotated or figures.lost:
                unreadable = f", {figures.lost} that no key can decrypt" if figures.lost else ""
                self.stdout.write(f"{figures.name}: {figures.rotated} encrypted anew{unreadable}")
        if lost:
            raise CommandError("Keep the old keys: some secrets cannot be decrypted. “manage.py doctor” names them.")
        self.stdout.write("Every stored secret is encrypted with the first key.")
