package console

import (
	"fmt"
	"net/url"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/ops"
)

// ref names one dead letter, or one thing that waits, in addresses and forms.
type ref struct{ ops.LetterRef }

// refOutbox names an event of the outbox.
func refOutbox(id, tenant string) ref {
	return ref{ops.LetterRef{Box: ops.BoxOutbox, ID: id, Tenant: tenant}}
}

// Values is the ref as it stands in an address.
func (r ref) Values() url.Values {
	q := url.Values{fieldBox: {string(r.Box)}, fieldID: {r.ID}, fieldTenant: {r.Tenant}}
	if r.Box == ops.BoxInbox {
		q.Set(fieldConsumer, r.Consumer)
		q.Set("source", r.Source)
	}
	return q
}

func (r ref) String() string { return r.Values().Encode() }

// Letter, Payload, Confirm and Edit are addresses of pages about it.
func (r ref) Letter() string { return "letter?" + r.String() }
func (r ref) Payload() string {
	return "letter?" + with(r.Values(), url.Values{"payload": {"1"}}).Encode() + "#payload"
}
func (r ref) Edit() string { return "edit?" + r.String() }
func (r ref) Confirm(action string) string {
	return "confirm?" + url.Values{fieldAction: {action}, "ref": {r.String()}}.Encode()
}

// refOf reads a ref.
func (c *Console) refOf(q url.Values) (ref, error) {
	r := ref{ops.LetterRef{
		Box: ops.Box(q.Get(fieldBox)), ID: q.Get(fieldID), Tenant: q.Get(fieldTenant), Consumer: q.Get(fieldConsumer), Source: q.Get("source"),
	}}
	if err := c.hasBox(r.Box); err != nil {
		return r, err
	}
	if uuid.Validate(r.ID) != nil {
		return r, fmt.Errorf("%s: %q is no id: ids are UUIDs, as the lists show them", fieldID, r.ID)
	}
	return r, nil
}

// refsOf reads the refs of a form or an address: those in the fields named ref.
func (c *Console) refsOf(q url.Values) (refs []ref, err error) {
	for _, text := range q["ref"] {
		one, err := url.ParseQuery(text)
		if err != nil {
			return nil, fmt.Errorf("ref: %q cannot be read: take the links and forms of the lists", text)
		}
		r, err := c.refOf(one)
		if err != nil {
			return nil, err
		}
		refs = append(refs, r)
	}
	return refs, nil
}
