package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// whereRelay is where events of the outbox die.
const whereRelay = "relay"

// maxShown is how much of a payload a page shows, in bytes. The command line shows all of it.
const maxShown = 256 << 10

// letter is a dead letter on a page.
type letter struct {
	ops.Letter

	Ref ref
}

func letterOf(l ops.Letter) letter { return letter{l, ref{l.Ref}} }

// Where is what gave it up.
func (l *letter) Where() string {
	if l.Ref.Box == ops.BoxInbox {
		return "consumer " + l.Ref.Consumer
	}
	return whereRelay
}

// letterView is the page of one dead letter.
type letterView struct {
	letter

	Details  []detail
	Metadata []detail
	Trace    *link
	Payload  *payload
	Audit    []auditRow
}

type detail struct{ Name, Value string }

// letter shows one dead letter whole, its payload only if that is asked for.
func (c *Console) letter(v *visit) error {
	r, err := c.refOf(v.URL.Query())
	if err != nil {
		return invalid(err)
	}
	l, err := c.readLetter(v, r)
	if err != nil {
		return c.explain(err)
	}
	view := &letterView{letter: l, Details: details(&l), Trace: c.trace(l.Envelope.Metadata)}
	for _, name := range slices.Sorted(maps.Keys(l.Envelope.Metadata)) {
		view.Metadata = append(view.Metadata, detail{name, l.Envelope.Metadata[name]})
	}
	if v.URL.Query().Get("payload") != "" {
		view.Payload = payloadOf(l.Envelope.Payload)
	}
	if view.Audit, err = c.auditOf(v, r); err != nil {
		return err
	}
	return v.show("letter", l.Envelope.Type, view)
}

func (c *Console) readLetter(v *visit, r ref) (letter, error) {
	l, err := c.view().Dead().Show(v.Context(), r.LetterRef)
	return letterOf(l), err
}

// explain turns the errors that an operator causes, or meets beside another operator, into what to do.
func (c *Console) explain(err error) error {
	switch {
	case errors.Is(err, operator.ErrNotDead):
		return &problem{
			http.StatusNotFound, "This is no dead letter, or no longer",
			"It may have been replayed or discarded meanwhile: the audit shows by whom.",
		}
	case errors.Is(err, operator.ErrSeveralDead):
		return &problem{
			http.StatusConflict, "Several dead letters have this id",
			"The producer gave one id to several events. Nothing was changed. Filter the list by the id, and act on what is filtered.",
		}
	default:
		return err
	}
}

func details(l *letter) []detail {
	e := &l.Envelope
	all := []detail{
		{"Event id", e.ID}, {"Type", e.Type}, {"Schema version", number(max(e.SchemaVersion, 1))}, {"Schema id", e.SchemaID}, {"Topic", e.Topic},
		{"Tenant", e.TenantID}, {"Source", e.Source}, {"Aggregate", strings.TrimSpace(e.AggregateType + " " + e.AggregateID)},
		{"Aggregate version", positive(e.AggregateVersion)}, {"Ordering key", l.Key}, {"Sequence", positive(e.Sequence)},
		{"Occurred", stamp(e.OccurredAt)}, {"Content type", e.ContentType}, {"Correlation id", e.Metadata[event.CorrelationID]},
	}
	if l.Ref.Box == ops.BoxInbox && l.Ref.ID != e.ID {
		all = append(all, detail{"Message key", l.Ref.ID})
	}
	return slices.DeleteFunc(all, func(d detail) bool { return d.Value == "" })
}

// trace returns a link to the trace in which an event was created, nil if it has none.
func (c *Console) trace(m event.Metadata) *link {
	parts := strings.Split(m[event.TraceParent], "-")
	if len(parts) < 4 || len(parts[1]) != 32 {
		return nil
	}
	if _, err := hex.DecodeString(parts[1]); err != nil {
		return nil
	}
	l := &link{Name: parts[1]}
	if c.cfg.TraceURL != "" {
		l.Href = strings.ReplaceAll(c.cfg.TraceURL, traceID, parts[1])
	}
	return l
}

// payload is what a page shows of one.
type payload struct {
	Text  string
	Bytes int
	Kind  string
	Cut   bool
}

func payloadOf(data []byte) *payload {
	const text = "text"
	p := &payload{Bytes: len(data), Kind: text}
	var pretty bytes.Buffer
	switch {
	case len(data) <= maxShown && json.Indent(&pretty, data, "", "  ") == nil:
		p.Kind, p.Text = "JSON", pretty.String()
	case utf8.Valid(data):
		p.Text = string(data[:min(len(data), maxShown)])
	default:
		p.Kind, p.Text = "binary, as hexadecimal digits", hex.Dump(data[:min(len(data), maxShown/8)])
		p.Cut = len(data) > maxShown/8
	}
	p.Cut = p.Cut || p.Kind == text && len(data) > maxShown
	return p
}
