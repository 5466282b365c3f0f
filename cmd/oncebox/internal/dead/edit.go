package dead

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

func newDeadEdit(s *cli.Session) *cobra.Command {
	var (
		f           selection
		by          operator.By
		file        string
		yes, dryRun bool
	)
	cmd := &cobra.Command{
		Use:   "edit ID",
		Short: "Replay a dead letter with another payload",
		Long: `Replay a dead letter with another payload. The editor that VISUAL or EDITOR names shows the payload; --payload-file gives the new one instead.
Everything else of the event stays, also its id. The old payload is lost, so --why is required and is kept in the audit. A JSON payload has to stay JSON.

An event is published with the new payload, to all of its consumers. A message that a consumer gave up has the new payload at that consumer alone.`,
		Example: `  oncebox dead edit 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e --by ann --why "the total was wrong"
  oncebox dead edit 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e --consumer billing --payload-file order.json --by ann --why "the total was wrong"`,
		Args: cli.ExactlyOneID,
	}
	f.flags(cmd)
	flags := cmd.Flags()
	cli.DecisionFlags(flags, &by, &yes, cli.Required, cli.Required)
	flags.StringVar(&file, "payload-file", "", "the file with the new payload, - for the standard input")
	flags.BoolVar(&dryRun, "dry-run", false, "only check the new payload, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.ID = args[0]
		errs := []error{f.complete(time.Now()), cli.NeedsActor(by.Actor)}
		if strings.TrimSpace(by.Reason) == "" {
			errs = append(errs, errors.New("--why is missing: say why; the old payload cannot be brought back"))
		}
		if err := errors.Join(errs...); err != nil {
			return cli.Usage(cmd, err)
		}
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		d, err := only(cmd.Context(), s, &f)
		if err != nil {
			return err
		}
		payload, err := newPayload(cmd.Context(), s, d, file)
		if err != nil {
			return err
		}
		return replaceAndReplay(cmd.Context(), s, d, payload, by, yes, dryRun)
	}
	return cmd
}

// editable is a dead letter whose payload may be replaced: it is unique, and its payload is not sealed.
type editable struct {
	Letter

	ref     ops.LetterRef
	payload []byte
	refused bool // its writer could make no valid event; a payload that is given, also the same one, makes it one
}

// only reads the selected dead letter with its payload. It refuses a selection of several, because one text cannot be
// right for two letters, and a sealed payload, because this command has no key.
func only(ctx context.Context, s *cli.Session, f *selection) (*editable, error) {
	// Two letters are enough to know that the id is not unique.
	list, err := letters(ctx, s, f, 2)
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0:
		return nil, cli.Exit(cli.ExitNothing, fmt.Errorf("no dead letter has the id %s; nothing was done", f.ID))
	case len(list) > 1:
		return nil, cli.Exit(cli.ExitUsage, fmt.Errorf("several dead letters have the id %s: choose one with --outbox, --consumer or --tenant", f.ID))
	case list[0].Envelope.ContentType == event.ContentTypeSealed:
		return nil, fmt.Errorf("the payload of %s is sealed (encrypted), and only the service can seal a new one: discard the dead letter, and let the "+
			"service emit the event again", f.ID)
	}
	l, err := s.View().Dead().Show(ctx, list[0].Ref)
	// Another operator was faster between the list and this reading.
	if errors.Is(err, operator.ErrNotDead) {
		return nil, cli.Exit(cli.ExitNothing, err)
	}
	return &editable{letterOf(&l), l.Ref, l.Envelope.Payload, l.Envelope.Metadata[outboxdb.Refused] != ""}, err
}

// newPayload returns the content of the file, or the operator's text from the editor, after checking it.
func newPayload(ctx context.Context, s *cli.Session, d *editable, file string) (payload []byte, err error) {
	// Without a file the operator edits interactively, and a wrong text can be corrected there. A file is
	// refused at once.
	switch file {
	case "":
		return editor(ctx, s, d)
	case "-":
		payload, err = io.ReadAll(s.In)
	default:
		payload, err = os.ReadFile(file) //nolint:gosec // the operator names it
	}
	if err != nil {
		return nil, cli.Exit(cli.ExitUsage, fmt.Errorf("--payload-file: %w", err))
	}
	if err := d.check(s.Program, payload); err != nil {
		return nil, cli.Exit(cli.ExitUsage, fmt.Errorf("--payload-file: %w", err))
	}
	return payload, nil
}

// isJSON reports whether the new payload has to be JSON: the content type says so, or there is no content
// type and the present payload is JSON.
func (d *editable) isJSON() bool {
	if d.ContentType == "" {
		return json.Valid(d.payload)
	}
	kind, _, err := mime.ParseMediaType(d.ContentType)
	return err == nil && (kind == event.ContentTypeJSON || strings.HasSuffix(kind, "+json"))
}

// check returns an error if a new payload cannot be used. A payload that must be JSON and is not would become a dead
// letter again, and an unchanged payload is probably a mistake: the editor was closed without saving.
func (d *editable) check(p cli.Program, payload []byte) error {
	var into json.RawMessage
	if err := json.Unmarshal(payload, &into); d.isJSON() && err != nil {
		return fmt.Errorf("the payload has to be JSON (%s): %w", d.ContentType, err)
	}
	switch {
	case len(payload) == 0:
		return errors.New("the payload is empty")
	case bytes.Equal(payload, d.payload) && !d.refused:
		return errors.New("the payload was not changed; to replay it unchanged: " + p.Decided("dead", "replay", d.ID))
	default:
		return nil
	}
}

// EditResult is the JSON output of dead edit. Scripts use the names, so they never change.
type EditResult struct {
	Action      string `json:"action"`
	DryRun      bool   `json:"dry_run"`
	ID          string `json:"id"`
	Consumer    string `json:"consumer,omitempty"`
	BytesBefore int    `json:"bytes_before"`
	BytesAfter  int    `json:"bytes_after"`
}

// replaceAndReplay asks, and stores and replays the new payload in one transaction. It prints the sizes, by which the
// operator notices a wrong file.
func replaceAndReplay(ctx context.Context, s *cli.Session, d *editable, payload []byte, by operator.By, yes, dryRun bool) error {
	what := fmt.Sprintf("the payload of %s (%s, %d bytes)", d.ID, d.of(), len(d.payload))
	done := fmt.Sprintf("%s would be replaced by %d bytes, and the dead letter replayed.", what, len(payload))
	if !dryRun {
		if err := s.Confirm(yes, fmt.Sprintf("replace %s by %d bytes, and replay it?", what, len(payload))); err != nil {
			return err
		}
		switch err := s.View().Dead().ReplayEdited(ctx, d.ref, payload, by); {
		case errors.Is(err, operator.ErrNotDead):
			return cli.Exit(cli.ExitNothing, err)
		case err != nil:
			return err
		}
		done = fmt.Sprintf("%s was replaced by %d bytes, and the dead letter is replayed.", what, len(payload))
	}
	if s.JSON {
		return s.Document(EditResult{"edit", dryRun, d.ID, d.Consumer, len(d.payload), len(payload)})
	}
	_, err := fmt.Fprintln(s.Out, cli.Printable(strings.ToUpper(done[:1])+done[1:]))
	return err
}
