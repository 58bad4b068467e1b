from __future__ import annotations
from fakes.editor import Editor

def test_main_job(tmp_path):
    (tmp_path/"a.txt").write_text("hello\n")
    with Editor("--model", "offline") as editor:
        editor.initialize()
        session = editor.new_session(tmp_path)
        turn = editor.prompt(session, "say hello\nthink hm\nread a.txt\nrun echo hi\nwrite b.txt: new\nreplace hello with bye in a.txt\nlist\nplan a; b\nstream 1000")
        assert turn.wait() == "end_turn"
        print(turn.text[:50], [ (c["title"], c["status"]) for c in turn.calls])
        turn = editor.prompt(session, "sleep 10")
        with editor.together():
            t2 = editor.prompt(session, "say one")
            editor.cancel(session)
        assert turn.wait() == "cancelled"
        print(t2.wait())
        editor.ping()
        turn = editor.prompt(session, "run sleep 100")
        turn.until(lambda u: u.get("status") == "in_progress")
        editor.cancel(session)
        assert turn.wait() == "cancelled"
        print(editor.dump()[-3000:])
