package failures

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/operator"
	causes "github.com/oncebox/oncebox/operator/failures"
)

func newNote(s *cli.Session) *cobra.Command {
	var by operator.By
	cmd := &cobra.Command{
		Use: "note FINGERPRINT TEXT", Short: "Write a note about one cause for other operators",
		Long: `Write a note about one cause, in place of an earlier note. It stays when the failures are gone, and is shown when the cause comes back. An empty
text removes the note.`,
		Example: "  oncebox failures note 3f9a1c0277d4be51 \"the mail server restarts at 02:30\" --by ann",
		Args:    cli.Takes(2, "failures note takes a fingerprint, as oncebox failures list shows it, and the text in quotes"),
	}
	cmd.Flags().StringVar(&by.Actor, "by", "", "your name: a login or an address"+cli.Required)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.NeedsActor(by.Actor); err != nil {
			return cli.Usage(cmd, err)
		}
		if _, err := find(cmd, s, args[0]); err != nil {
			return err
		}
		if err := s.View().Failures().Note(cmd.Context(), args[0], args[1], by); err != nil {
			return err
		}
		return marked(s, operator.Note, args[0], "The note is stored.")
	}
	return cmd
}

// mark is a decision whether a group is in the lists.
type mark struct {
	action            operator.Action
	short, long, done string
	why               bool // a reason is required
	act               func(f causes.Boxes, ctx context.Context, fingerprint string, by operator.By) error
}

var (
	archive = mark{
		action: operator.Archive, short: "Take one cause out of the lists until something new fails for it", why: true,
		long: `Take one cause out of the lists of oncebox stuck, oncebox failures and the console, until something new fails for it. Then it is back, and says
so. Its messages are tried as before. --why is required: people who look for the failures read it.`,
		done: "The cause is archived. It comes back with the next failure.", act: causes.Boxes.Archive,
	}
	unarchive = mark{
		action: operator.Unarchive, short: "Put an archived cause back into the lists", long: "Put an archived cause back into the lists.",
		done: "The cause is in the lists again.", act: causes.Boxes.Unarchive,
	}
)

func newMark(s *cli.Session, m *mark) *cobra.Command {
	var by operator.By
	name := string(m.action)
	cmd := &cobra.Command{
		Use: name + " FINGERPRINT", Short: m.short, Long: m.long, Args: takesOne,
		Example: "  oncebox failures " + name + " 3f9a1c0277d4be51 --by ann --why \"known, mended with release 7\"",
	}
	required := cli.Optional
	if m.why {
		required = cli.Required
	}
	cmd.Flags().StringVar(&by.Actor, "by", "", "who decides: a login or an address, for the audit"+cli.Required)
	cmd.Flags().StringVar(&by.Reason, "why", "", "why, for the audit"+required)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := m.check(by); err != nil {
			return cli.Usage(cmd, err)
		}
		if _, err := find(cmd, s, args[0]); err != nil {
			return err
		}
		if err := m.act(s.View().Failures(), cmd.Context(), args[0], by); err != nil {
			return err
		}
		return marked(s, m.action, args[0], m.done)
	}
	return cmd
}

// check reports missing flags.
func (m *mark) check(by operator.By) error {
	why := error(nil)
	if m.why && strings.TrimSpace(by.Reason) == "" {
		why = errors.New("--why is missing: say why; people who look for the failures read it")
	}
	return errors.Join(cli.NeedsActor(by.Actor), why)
}

// marked reports what was decided about a group.
func marked(s *cli.Session, action operator.Action, fingerprint, done string) error {
	if s.JSON {
		return s.Document(cli.Acted{Action: string(action), ID: fingerprint})
	}
	_, err := fmt.Fprintln(s.Out, done)
	return err
}
