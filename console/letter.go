package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// whereRelay is what a page calls the place where events of the outbox become dead letters.
const whereRelay = "relay"

// maxShown is how much of a payload a page shows, in bytes. The command line shows all of it.
const maxShown = 256 << 10

// letter is a dead letter on a page.
type letter struct {
	ops.Letter

	Ref ref
}

func letterOf(l ops.Letter) letter { return letter{l, ref{l.Ref}} }

// Where returns which relay or consumer gave the letter up.
func (l *letter) Where() string {
	if l.Ref.Box == ops.BoxInbox {
		return "consumer " + l.Ref.Consumer
	}
	return whereRelay
}

// letterView is the data of the page of one dead letter.
type letterView struct {
	letter

	Details  []detail
	Metadata []detail
	Trace    *link
	Payload  *payload
	Audit    []auditRow
}

type detail struct{ Name, Value string }

// showLetter shows one dead letter with all its fields, and its payload only if the actor asks for it.
func showLetter(v *visit) error {
	r, err := refOf(v.Console, v.URL.Query())
	if err != nil {
		return invalid(err)
	}
	l, err := readLetter(v, r)
	if err != nil {
		return explained(err)
	}
	view := &letterView{letter: l, Details: details(&l), Trace: trace(v.Console, l.Envelope.Metadata)}
	for _, name := range slices.Sorted(maps.Keys(l.Envelope.Metadata)) {
		view.Metadata = append(view.Metadata, detail{name, l.Envelope.Metadata[name]})
	}
	if v.URL.Query().Get("payload") != "" {
		view.Payload = payloadOf(l.Envelope.Payload)
	}
	if view.Audit, err = auditOf(v, r); err != nil {
		return err
	}
	return v.show("letter", l.Envelope.Type, view)
}

func readLetter(v *visit, r ref) (letter, error) {
	l, err := v.view().Dead().Show(v.Context(), r.LetterRef)
	return letterOf(l), err
}

// explained turns errors that an operator's action can cause, for example beside another operator's, into problems that say what to do.
func explained(err error) error {
	switch {
	case errors.Is(err, operator.ErrNotDead):
		return &problem{
			http.StatusNotFound, "This is not a dead letter, or not any more",
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

// trace returns a link to the trace in which the event was created, nil if it has none.
func trace(c *Console, m event.Metadata) *link {
	// A W3C traceparent has four parts, and the second is the trace id: 32 hexadecimal digits (Trace Context, section 3.2). Anything else gets no link.
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

// payload is a payload as a page shows it.
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

// ref names one dead letter, or one waiting event or message, in addresses and forms.
type ref struct{ ops.LetterRef }

// refOutbox names an event of the outbox.
func refOutbox(id, tenant string) ref {
	return ref{ops.LetterRef{Box: ops.BoxOutbox, ID: id, Tenant: tenant}}
}

// Values returns the ref as the query of an address.
func (r ref) Values() url.Values {
	q := url.Values{fieldBox: {string(r.Box)}, fieldID: {r.ID}, fieldTenant: {r.Tenant}}
	if r.Box == ops.BoxInbox {
		q.Set(fieldConsumer, r.Consumer)
		q.Set("source", r.Source)
	}
	return q
}

func (r ref) String() string { return r.Values().Encode() }

// Letter, Payload, Confirm and Edit return addresses of pages about the letter.
func (r ref) Letter() string { return "letter?" + r.String() }
func (r ref) Payload() string {
	return "letter?" + with(r.Values(), url.Values{"payload": {"1"}}).Encode() + "#payload"
}
func (r ref) Edit() string { return "edit?" + r.String() }
func (r ref) Confirm(action string) string {
	return "confirm?" + url.Values{fieldAction: {action}, "ref": {r.String()}}.Encode()
}

// refOf reads a ref from a query.
func refOf(c *Console, q url.Values) (ref, error) {
	r := ref{ops.LetterRef{
		Box: ops.Box(q.Get(fieldBox)), ID: q.Get(fieldID), Tenant: q.Get(fieldTenant), Consumer: q.Get(fieldConsumer), Source: q.Get("source"),
	}}
	if err := hasBox(c, r.Box); err != nil {
		return r, err
	}
	// Ids reach statements that compare UUIDs. Another text would be an error of the database, and not a message for the actor.
	if uuid.Validate(r.ID) != nil {
		return r, fmt.Errorf("%s: %q is not an id: ids are UUIDs, as the lists show them", fieldID, r.ID)
	}
	return r, nil
}

// refsOf reads the refs in all fields named ref of a form or an address.
// A ref is a query inside a query, so one checkbox can carry all its fields.
func refsOf(c *Console, q url.Values) (refs []ref, err error) {
	for _, text := range q["ref"] {
		one, err := url.ParseQuery(text)
		if err != nil {
			return nil, fmt.Errorf("ref: %q cannot be read: take the links and forms of the lists", text)
		}
		r, err := refOf(c, one)
		if err != nil {
			return nil, err
		}
		refs = append(refs, r)
	}
	return refs, nil
}
