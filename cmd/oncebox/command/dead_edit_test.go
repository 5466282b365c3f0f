package command

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/dead"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/operator"
)

// A dead event and a dead message get another payload, each from where it can be given, and flow with it.
func TestEditedDeadLettersFlow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.killed()
	list := document[[]dead.Letter](t, s.oncebox("dead", "list", "--json"))
	message, event := list[0].ID, list[1].ID
	file := filepath.Join(t.TempDir(), "order.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"Order": "mended event"}`), 0o600))
	args := []string{"dead", "edit", event, "--payload-file", file, "--by", "ann", "--why", "it had no name"}

	would := document[dead.EditResult](t, s.oncebox(append(args, "--dry-run", "--json")...))
	require.Equal(t, dead.EditResult{Action: "edit", DryRun: true, ID: event, Consumer: "", BytesBefore: 24, BytesAfter: 25}, would)
	require.Equal(t, cli.ExitRefused, s.oncebox(args...).code, "nobody answers")
	require.Equal(t, cli.ExitRefused, s.asked("n\n", args...).code)
	require.Len(t, document[[]dead.Letter](t, s.oncebox("dead", "list", "--json")), 2, "nothing was changed")
	done := s.asked("y\n", args...)
	require.Equal(t, "The payload of "+event+" (outbox, 24 bytes) was replaced by 25 bytes, and the dead letter is replayed.\n", done.out)
	require.Equal(t, cli.ExitNothing, s.asked("y\n", args...).code)

	fromInput := &cli.Terminal{In: openAnswers(t, `{"Order":"mended message"}`)}
	edited := command(t, fromInput, "--database-url", pgtest.URL(t), "--schema", s.Schema,
		"dead", "edit", message, "--consumer", "billing", "--payload-file", "-", "--by", "ann", "--why", "it had no name", "--yes", "--json")
	require.Equal(t, dead.EditResult{Action: "edit", ID: message, Consumer: "billing", BytesBefore: 26, BytesAfter: 26},
		document[dead.EditResult](t, edited))
	s.Drain()
	require.ElementsMatch(t, []string{`{"Order":"mended message"}`, `{"Order": "mended event"}`}, s.seen)
	require.Empty(t, document[[]dead.Letter](t, s.oncebox("dead", "list", "--json")))

	published, err := s.App.Outbox.Audit(t.Context(), operator.AuditFilter{EventID: event}, nil, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"ann", "edit", "it had no name"}, []string{published[0].Actor, string(published[0].Action), published[0].Reason})
	handled, err := s.App.Inbox.Audit(t.Context(), operator.AuditFilter{}, nil, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"ann", "edit", "it had no name"}, []string{handled[0].Actor, string(handled[0].Action), handled[0].Reason})
}

// openAnswers is what an operator types. It is a file, as a terminal is one, so that an editor that reads nothing takes nothing away.
func openAnswers(t *testing.T, text string) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "answers")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	file, err := os.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	return file
}

// The editor gets lines to edit in a file that nobody else can read, and what is no JSON afterwards comes up again.
func TestEditorIsAskedForThePayload(t *testing.T) {
	s := newShop(t)
	s.killed()
	id := document[[]dead.Letter](t, s.oncebox("dead", "list", "--inbox", "--json"))[0].ID
	folder := t.TempDir()
	t.Setenv("VISUAL", "")
	t.Setenv("TMPDIR", folder)
	editor := func(script string) string {
		t.Helper()
		name := filepath.Join(t.TempDir(), "editor")
		require.NoError(t, os.WriteFile(name, []byte("#!/bin/sh\nset -e\n"+script), 0o700))
		return name
	}
	edit := func(answers string) answer {
		t.Helper()
		at := &cli.Terminal{In: openAnswers(t, answers), Asks: true}
		return command(t, at, "--database-url", pgtest.URL(t), "--schema", s.Schema,
			"dead", "edit", id, "--inbox", "--by", "ann", "--why", "it had no name")
	}
	t.Setenv("EDITOR", "")
	require.Contains(t, edit("").errs, "set EDITOR, or give --payload-file")
	t.Setenv("EDITOR", editor("exit 3"))
	failed := edit("")
	require.Equal(t, cli.ExitFailed, failed.code)
	require.Contains(t, failed.errs, "exit status 3; nothing was done")
	t.Setenv("EDITOR", editor("true"))
	same := edit("n\n")
	require.Equal(t, cli.ExitRefused, same.code)
	require.Contains(t, same.errs, "to replay it unchanged: oncebox dead replay "+id)
	t.Setenv("EDITOR", editor(`stat -c %a "$2" > "$1"; cat "$2" >> "$1"; echo '{' > "$2"`)+" "+filepath.Join(folder, "seen"))
	broken := edit("n\n")
	require.Equal(t, cli.ExitRefused, broken.code)
	require.Contains(t, broken.errs, "the payload has to be JSON (application/json)")
	require.Len(t, document[[]dead.Letter](t, s.oncebox("dead", "list", "--inbox", "--json")), 1, "nothing was changed")
	seen, err := os.ReadFile(filepath.Join(folder, "seen"))
	require.NoError(t, err)
	require.Equal(t, "600\n{\n  \"Order\": \"poison message\"\n}\n", string(seen))

	// The first try leaves half of it, which the second one gets back.
	t.Setenv("EDITOR", editor(`if grep -q poison "$1"; then printf '{"Order":\n' > "$1"; else echo '"second"}' >> "$1"; fi`))
	mended := edit("y\ny\n")
	require.Zero(t, mended.code, mended.errs)
	require.Contains(t, mended.errs, "edit it again? [y/N]")
	s.Drain()
	require.Equal(t, []string{`{"Order":"second"}`}, s.seen[:1], "in one line, as it was")
	left, err := filepath.Glob(filepath.Join(folder, "oncebox-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestEditRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.killed()
	list := document[[]dead.Letter](t, s.oncebox("dead", "list", "--json"))
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("no json"), 0o600))
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	by := []string{"--by", "ann", "--why", "x", "--yes"}
	for _, test := range []struct {
		code int
		says string
		args []string
	}{
		{cli.ExitUsage, "--why is missing", []string{list[0].ID, "--by", "ann"}},
		{cli.ExitUsage, "--by is missing", []string{list[0].ID, "--why", "x"}},
		{cli.ExitUsage, "takes one id", by},
		{cli.ExitUsage, "has to be JSON", append([]string{list[0].ID, "--payload-file", text}, by...)},
		{cli.ExitUsage, "--payload-file: the payload", append([]string{list[0].ID, "--payload-file", empty}, by...)},
		{cli.ExitUsage, "no such file", append([]string{list[0].ID, "--payload-file", text + "x"}, by...)},
		{cli.ExitNothing, "nothing was done", append([]string{list[0].ID, "--outbox", "--payload-file", text}, by...)},
	} {
		a := s.oncebox(append([]string{"dead", "edit"}, test.args...)...)
		require.Equal(t, test.code, a.code, "%q: %s", test.args, a.errs)
		require.Contains(t, a.errs, test.says, "%q", test.args)
	}
	require.Len(t, document[[]dead.Letter](t, s.oncebox("dead", "list", "--json")), 2, "nothing was changed")

	// Two consumers, or two tenants, may have given up the same event.
	_, err := s.DB.ExecContext(t.Context(), "UPDATE outbox_dead SET id = ?", list[0].ID)
	require.NoError(t, err)
	several := s.oncebox(append([]string{"dead", "edit", list[0].ID, "--payload-file", text}, by...)...)
	require.Equal(t, cli.ExitUsage, several.code)
	require.Contains(t, several.errs, "choose one with --outbox, --consumer or --tenant")
	_, err = s.DB.ExecContext(t.Context(), "UPDATE outbox_dead SET content_type = ?", event.ContentTypeSealed)
	require.NoError(t, err)
	sealed := s.oncebox(append([]string{"dead", "edit", list[0].ID, "--outbox", "--payload-file", text}, by...)...)
	require.Equal(t, cli.ExitFailed, sealed.code)
	require.Contains(t, sealed.errs, "is sealed")
}

// One in 10,000 seconds: after the first id the wait would be longer than the command may last.
func TestIDsOfOneCommandShareTheRate(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.killed()
	require.Contains(t, s.oncebox("dead", "replay", "--all", "--by", "ann", "--rate", "-1").errs, "--rate is below 0")
	list := document[[]dead.Letter](t, s.oncebox("dead", "list", "--json"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	a := commandWithin(ctx, &cli.Terminal{}, "--database-url", pgtest.URL(t), "--schema", s.Schema,
		"dead", "replay", list[0].ID, list[1].ID, "--rate", "1e-4", "--by", "ann", "--yes")
	require.Equal(t, cli.ExitFailed, a.code)
	require.Contains(t, a.errs, "wait, for the rate that was asked for")
	require.Contains(t, a.errs, "1 dead letter was replayed before the error: run the command again for the others")
	require.Len(t, document[[]dead.Letter](t, s.oncebox("dead", "list", "--json")), 1)
	require.Zero(t, s.oncebox("dead", "replay", "--all", "--rate", "1000", "--by", "ann", "--yes").code)
}
