package causes

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
)

const (
	// FieldForm is the field of the page's address with the form that is open: one of the actions Note and Archive.
	FieldForm = "form"
	// maxNote is the longest note, in bytes.
	maxNote = 2048
)

// Mark is what an operator says about a cause: a note, or that it is archived, or back in the lists.
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

// Store stores the mark. The error is failures.ErrUnknown if nothing fails with the fingerprint any more.
func (m *Mark) Store(ctx context.Context, groups failures.Boxes, by operator.By) error {
	switch m.Action {
	case operator.Note:
		return groups.Note(ctx, m.Fingerprint, m.Note, by)
	case operator.Archive:
		return groups.Archive(ctx, m.Fingerprint, by)
	default:
		return groups.Unarchive(ctx, m.Fingerprint, by)
	}
}

// Marked returns the sentence that reports the mark which was stored on the page before.
func Marked(action string) string {
	return map[operator.Action]string{
		operator.Note: "The note is stored.", operator.Archive: "The cause is out of the lists. It comes back with the next failure.",
		operator.Unarchive: "The cause is in the lists again.",
	}[operator.Action(action)]
}
