package causes

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
)

const (
	// maxNote is the longest note, in bytes.
	maxNote = 2048
)

// Mark is what an operator says about a cause: a note, or that it is archived, or back in the lists. Fingerprint is that of the cause; of a cause with
// messages of several types it has those of all, with commas between them.
type Mark struct {
	Action            operator.Action
	Fingerprint, Note string
	Reason            string
}

// MarkOf reads a mark from a form. The error is for a form that no page has shown.
func MarkOf(form url.Values) (*Mark, error) {
	text := func(field string) string { return strings.TrimSpace(form.Get(field)) }
	m := &Mark{operator.Action(form.Get("action")), text(Field), text("note"), text("reason")}
	switch m.Action {
	case operator.Note, operator.Archive, operator.Unarchive:
		return m, nil
	default:
		return nil, fmt.Errorf("action: %q is none of note, archive and unarchive", m.Action)
	}
}

// NeedsReason reports whether the form asks for a reason.
func (m *Mark) NeedsReason() bool { return m.Action == operator.Archive }

// Wrong returns what is wrong with the note, "" if it is fine.
func (m *Mark) Wrong() string {
	if len(m.Note) > maxNote {
		return fmt.Sprintf("The note has %d bytes, and at most %d are stored.", len(m.Note), maxNote)
	}
	return ""
}

// First returns the fingerprint of the page that had the form.
func (m *Mark) First() string { return First(m.Fingerprint) }

// First returns the first of several fingerprints with commas between them.
func First(fingerprints string) string {
	first, _, _ := strings.Cut(fingerprints, ",")
	return first
}

// Store stores the mark, for each type. The error is failures.ErrUnknown if nothing fails with any of the fingerprints any more.
func (m *Mark) Store(ctx context.Context, groups failures.Boxes, by operator.By) (err error) {
	stored := false
	for fingerprint := range strings.SplitSeq(m.Fingerprint, ",") {
		switch one := m.store(ctx, groups, fingerprint, by); {
		case one == nil:
			stored = true
		case errors.Is(one, failures.ErrUnknown):
			err = one // its messages were handled in the meantime
		default:
			return one
		}
	}
	if stored {
		return nil
	}
	return err
}

func (m *Mark) store(ctx context.Context, groups failures.Boxes, fingerprint string, by operator.By) error {
	switch m.Action {
	case operator.Note:
		return groups.Note(ctx, fingerprint, m.Note, by)
	case operator.Archive:
		return groups.Archive(ctx, fingerprint, by)
	default:
		return groups.Unarchive(ctx, fingerprint, by)
	}
}

// Marked returns the sentence that reports the mark which was stored on the page before.
func Marked(action string) string {
	return map[operator.Action]string{
		operator.Note: "The note is stored.", operator.Archive: "The cause is out of the lists. It comes back with the next failure.",
		operator.Unarchive: "The cause is in the lists again.",
	}[operator.Action(action)]
}
