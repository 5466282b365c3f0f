package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/console/internal/facts"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox/dead"
)

// whereRelay is what a page calls the place where events of the outbox become dead letters.
const whereRelay = "relay"

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

	Details  []facts.Detail
	Metadata []facts.Detail
	Trace    *facts.Trace
	Payload  *facts.Payload
	Audit    []auditRow
	Behind   *facts.Queue // nil: it does not hold its key
}

// showLetter shows one dead letter with all its fields and its payload.
func showLetter(v *visit) error {
	r, err := refOf(v.Console, v.URL.Query())
	if err != nil {
		return invalid(err)
	}
	l, err := readLetter(v, r)
	if errors.Is(err, operator.ErrSeveralDead) { // the list has all of them
		several := selection{Selection: ops.Selection{Box: r.Box, ID: r.ID, Tenant: r.Tenant}}
		v.redirect("dead?" + several.Values().Encode())
		return nil
	}
	if err != nil {
		return explained(err)
	}
	view := &letterView{
		letter: l, Details: facts.OfLetter(&l.Letter), Metadata: facts.Metadata(l.Envelope.Metadata),
		Trace: facts.TraceOf(v.cfg.TraceURL, l.Envelope.Metadata), Payload: facts.PayloadOf(l.Envelope.Payload),
	}
	if view.Audit, err = auditOf(v, r); err != nil {
		return err
	}
	if l.Holds {
		if view.Behind, err = behind(v, &l); err != nil {
			return err
		}
	}
	return v.show("letter", l.Envelope.Type, view)
}

// behind reads what waits behind a letter that holds its key.
func behind(v *visit, l *letter) (*facts.Queue, error) {
	var all []event.Envelope
	if l.Ref.Box == ops.BoxInbox {
		page, err := v.cfg.Inbox.Parked().List(v.Context(), parked.Filter{Behind: l.Ref.Message()}, nil, facts.MostBehind+1)
		for n := range page {
			all = append(all, page[n].Envelope)
		}
		return facts.QueueOf(all, l.Ref.Source), err
	}
	page, err := v.cfg.Outbox.Dead().Behind(v.Context(), l.Ref.ID, facts.MostBehind+1, dead.OfTenant(l.Ref.Tenant))
	for n := range page {
		all = append(all, page[n].Envelope)
	}
	return facts.QueueOf(all, l.Envelope.Source), err
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
		q.Set(fieldSource, r.Source)
	}
	return q
}

func (r ref) String() string { return r.Values().Encode() }

// Letter, Confirm and Edit return addresses of pages about the letter.
func (r ref) Letter() string { return "letter?" + r.String() }
func (r ref) Edit() string   { return "edit?" + r.String() }
func (r ref) Confirm(action string) string {
	return "confirm?" + url.Values{fieldAction: {action}, "ref": {r.String()}}.Encode()
}

// refOf reads a ref from a query.
func refOf(c *Console, q url.Values) (ref, error) {
	r := ref{ops.LetterRef{
		Box: ops.Box(q.Get(fieldBox)), ID: q.Get(fieldID), Tenant: q.Get(fieldTenant), Consumer: q.Get(fieldConsumer), Source: q.Get(fieldSource),
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
