"""The codes of the acts that the audit records.

To add an act:

1. Add its verb to its kind of row in `_VERBS_BY_KIND`.
2. Add its label to `core.audit.words`.
3. Call `core.audit.services.record` in the service, within its transaction.
4. Perform it in `tests/core/audit/acts.py`.
"""

_VERBS_BY_KIND = {
    "person": "signed_in sign_in_failed signed_out_everywhere added invited imported link_made changed deactivated "
    "activated rights_changed handed_over deleted erased linked signed_out_by_provider email_changed",
    "password": "changed chosen set switched_off refused link_mailed",
    "second_factor": "set_up removed reset codes_made code_used refused",
    "session": "ended",
    "token": "made revoked",
    "openid_provider": "added changed deleted",
    "group": "added changed deleted",
    "limit": "added changed deleted",
    "people_group": "added changed deleted members_changed",
    "workspace": "changed",
    "webhook": "made changed deleted switched_off",
    "provider": "added changed deleted",
    "model": "added changed deleted made_default fallback_chosen learnt_forgotten",
    "web_search": "added changed deleted switched_on switched_off",
    "web_access": "added changed deleted",
    "tool_server": "added changed deleted",
    "tool_grant": "connected disconnected",
    "embedder": "added changed deleted activated",
    "reranker": "added changed deleted switched_on switched_off",
    "speech_server": "added changed deleted switched_on switched_off",
    "system_prompt": "added activated",
    "summary_prompt": "added activated",
    "prompt_text": "added activated built_in_activated",
    "reminder": "added changed deleted",
    "budget_profile": "added changed deleted made_default",
    "persona": "made changed published withdrawn shared share_changed unshared opened handed_over deleted",
    "project": "made changed opened handed_over deleted",
    "member": "invited joined added role_changed removed",
    "conversation": "exported all_exported deleted restored erased imported import_undone held released",
    "message": "deleted edited restored",
    "memory": "changed emptied",
    "fact": "kept corrected forgotten",
    "share": "made ended",
    "team_share": "made changed ended copied",
    "file": "given deleted",
    "run": "stopped_by_admin",
    "replay": "begun",
    "reading": "begun removed",
    "usage": "exported",
    "audit": "exported forgotten",
    # Changes by administrators to rows of other kinds.
    "row": "added changed deleted",
}
ERASED = "person.erased"  # after this act, audit rows name the person only by id
ACTIONS: tuple[str, ...] = tuple(f"{kind}.{verb}" for kind, verbs in _VERBS_BY_KIND.items() for verb in verbs.split())
