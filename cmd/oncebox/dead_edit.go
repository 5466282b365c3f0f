package main

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

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
)

func newDeadEdit(s *session) *cobra.Command {
	var (
		f           selection
		by, why     string
		file        string
		yes, dryRun bool
	)
	cmd := &cobra.Command{
		Use:   "edit ID",
		Short: "Replay a dead letter with another payload",
		Long: `Replay a dead letter with another payload. The editor that VISUAL or EDITOR names shows the payload; --payload-file gives the new one instead.
All else of the event stays, its id too. The former payload is gone: --why is required, and stays in the audit. A payload that is JSON has to stay JSON.

An event is published with the new payload, to all of its consumers. A message that a consumer gave up has the new payload at that consumer alone.`,
		Example: `  oncebox dead edit 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e --by ann --why "the total was wrong"
  oncebox dead edit 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e --consumer billing --payload-file order.json --by ann --why "the total was wrong"`,
		Args: exactlyOneID,
	}
	f.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&by, "by", "", "who decides: a login or an address, for the audit (required)")
	flags.StringVar(&why, "why", "", "why, for the audit (required)")
	flags.StringVar(&file, "payload-file", "", "the file with the new payload, - for the standard input")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	flags.BoolVar(&dryRun, "dry-run", false, "check the new payload only")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.id = args[0]
		errs := []error{f.complete(time.Now()), needsActor(by)}
		if strings.TrimSpace(why) == "" {
			errs = append(errs, errors.New("--why is missing: the former payload is gone, say why"))
		}
		if err := errors.Join(errs...); err != nil {
			return usage(cmd, err)
		}
		if err := s.openTables(cmd.Context()); err != nil {
			return err
		}
		d, err := s.only(cmd.Context(), &f, by, why)
		if err != nil {
			return err
		}
		payload, err := s.newPayload(cmd.Context(), d, file)
		if err != nil {
			return err
		}
		return s.replaceAndReplay(cmd.Context(), d, payload, yes, dryRun)
	}
	return cmd
}

// editable is a dead letter with its payload, and what replays it with another one.
type editable struct {
	letter

	payload []byte
	replay  func(context.Context, []byte) error
}

// only reads the dead letter that is selected, and refuses several.
func (s *session) only(ctx context.Context, f *selection, by, why string) (*editable, error) {
	list, err := s.letters(ctx, f, 2)
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0:
		return nil, &exitError{exitNothing, fmt.Errorf("no dead letter has the id %s; nothing was done", f.id)}
	case len(list) > 1:
		return nil, &exitError{exitUsage, fmt.Errorf("several dead letters have the id %s: choose one with --outbox, --consumer or --tenant", f.id)}
	case list[0].ContentType == event.ContentTypeSealed:
		return nil, fmt.Errorf("the payload of %s is sealed, and only the service can seal another: discard it, and let the service announce it again", f.id)
	case list[0].Consumer == "":
		d, err := s.outbox().DeadLetter(ctx, f.id, outbox.OfTenant(list[0].Tenant))
		return &editable{list[0], d.Payload, func(ctx context.Context, payload []byte) error {
			return s.outbox().ReplayEdited(ctx, f.id, payload, operator.By{Actor: by, Reason: why}, outbox.OfTenant(d.TenantID))
		}}, err
	}
	page, err := s.inbox().Dead(ctx, f.filter(), nil, 1)
	if err != nil {
		return nil, err
	}
	if len(page) == 0 {
		return nil, &exitError{exitNothing, operator.ErrNotDead}
	}
	d, err := s.inbox().DeadLetter(ctx, page[0].Key)
	return &editable{inboxLetter(&d), d.Envelope.Payload, func(ctx context.Context, payload []byte) error {
		return s.inbox().ReplayEdited(ctx, d.Key, payload, operator.By{Actor: by, Reason: why})
	}}, err
}

// newPayload is that of the file, or what the editor leaves. It is checked.
func (s *session) newPayload(ctx context.Context, d *editable, file string) (payload []byte, err error) {
	switch file {
	case "":
		return s.editor(ctx, d)
	case "-":
		payload, err = io.ReadAll(s.in)
	default:
		payload, err = os.ReadFile(file) //nolint:gosec // the operator names it
	}
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("--payload-file: %w", err)}
	}
	if err := d.check(payload); err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("--payload-file: %w", err)}
	}
	return payload, nil
}

// isJSON says that the payload has to be JSON: by its content type, or as it was so without one.
func (d *editable) isJSON() bool {
	if d.ContentType == "" {
		return json.Valid(d.payload)
	}
	kind, _, err := mime.ParseMediaType(d.ContentType)
	return err == nil && (kind == event.ContentTypeJSON || strings.HasSuffix(kind, "+json"))
}

// check finds what is wrong with a new payload.
func (d *editable) check(payload []byte) error {
	var into json.RawMessage
	if err := json.Unmarshal(payload, &into); d.isJSON() && err != nil {
		return fmt.Errorf("the payload has to be JSON (%s): %w", d.ContentType, err)
	}
	switch {
	case len(payload) == 0:
		return errors.New("the payload is empty")
	case bytes.Equal(payload, d.payload):
		return errors.New("the payload is as it was; to replay it so: " + decided("dead", "replay", d.ID))
	default:
		return nil
	}
}

// editResult is what edit prints as JSON. The names stay.
type editResult struct {
	Action      string `json:"action"`
	DryRun      bool   `json:"dry_run"`
	ID          string `json:"id"`
	Consumer    string `json:"consumer,omitempty"`
	BytesBefore int    `json:"bytes_before"`
	BytesAfter  int    `json:"bytes_after"`
}

func (s *session) replaceAndReplay(ctx context.Context, d *editable, payload []byte, yes, dryRun bool) error {
	what := fmt.Sprintf("the payload of %s (%s, %d bytes)", d.ID, d.of(), len(d.payload))
	done := fmt.Sprintf("%s would be replaced by %d bytes, and the dead letter replayed.", what, len(payload))
	if !dryRun {
		if err := s.confirm(yes, fmt.Sprintf("replace %s by %d bytes, and replay it?", what, len(payload))); err != nil {
			return err
		}
		switch err := d.replay(ctx, payload); {
		case errors.Is(err, operator.ErrNotDead):
			return &exitError{exitNothing, err}
		case err != nil:
			return err
		}
		done = fmt.Sprintf("%s was replaced by %d bytes, and the dead letter is replayed.", what, len(payload))
	}
	if s.json {
		return s.document(editResult{"edit", dryRun, d.ID, d.Consumer, len(d.payload), len(payload)})
	}
	_, err := fmt.Fprintln(s.out, printable(strings.ToUpper(done[:1])+done[1:]))
	return err
}
