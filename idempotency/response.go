package idempotency

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Why a body was not kept.
const (
	// OmittedTooLarge means that the body was too large to be stored.
	OmittedTooLarge = "too_large"
	// OmittedNotHeld means that the body was too large to be held in memory, or incomplete.
	OmittedNotHeld = "not_held"
	// OmittedErased means that the answer was removed by [Store.Erase].
	OmittedErased = "erased"
)

// Response is the answer to a request, as it is stored.
type Response struct {
	// Status is the code of the answer, 200 to 599.
	Status int
	// Header holds the headers that the caller chose to keep, in valid UTF-8. The store keeps all of them.
	Header map[string][]string
	// Body is kept byte for byte.
	Body []byte
	// Omitted is why the body was not kept, "" if it was. With such a tombstone a retry cannot get the first answer, but the work is not done again.
	Omitted string
}

// record is a row as the statements return it. state is NULL if there is no row.
type record struct {
	state, tag      sql.NullString
	sum             []byte
	status          sql.NullInt16
	headers, reason sql.NullString
	body            []byte
	lasts           sql.NullBool // it does not expire soon; only look-ups read this
}

func (r *record) dest() []any {
	return []any{&r.state, &r.tag, &r.sum, &r.status, &r.headers, &r.reason, &r.body}
}

// print returns the fingerprint of the row's request.
func (r *record) print() Fingerprint {
	fp := Fingerprint{Tag: r.tag.String}
	copy(fp.Sum[:], r.sum)
	return fp
}

// answer returns the stored answer for a request with this fingerprint, nil if there is no row.
func (r *record) answer(fp Fingerprint) (*Response, error) {
	switch {
	case !r.state.Valid:
		return nil, nil //nolint:nilnil // a new key has no answer and no error
	case r.state.String != stateCompleted && r.state.String != stateUnknown:
		return nil, ErrInProgress
	case r.print().differs(fp):
		return nil, ErrMismatch
	case r.state.String == stateUnknown:
		return nil, ErrStepUnknown
	}
	resp := &Response{Status: int(r.status.Int16), Body: r.body, Omitted: r.reason.String}
	if err := json.Unmarshal([]byte(r.headers.String), &resp.Header); err != nil {
		return nil, fmt.Errorf("idempotency: read the stored headers: %w", err)
	}
	return resp, nil
}

// size is roughly the memory that the answer takes, in bytes.
func (r *Response) size() int {
	n := len(r.Body)
	for name, values := range r.Header {
		n += len(name)
		for _, v := range values {
			n += len(v)
		}
	}
	return n
}

// columns returns headers, body and omitted as they are written.
func (r *Response) columns() (headers string, body []byte, omitted any, err error) {
	if r.Status < 200 || r.Status > 599 {
		return "", nil, nil, fmt.Errorf("idempotency: the status %d is not that of an answer: 200 to 599 are", r.Status)
	}
	header := r.Header
	if header == nil {
		header = map[string][]string{}
	}
	for name, values := range header {
		for _, v := range append([]string{name}, values...) {
			if !utf8.ValidString(v) {
				return "", nil, nil, fmt.Errorf("idempotency: header %q is not valid UTF-8 and would be changed by storing it", name)
			}
		}
	}
	encoded, err := json.Marshal(header)
	if err != nil {
		return "", nil, nil, fmt.Errorf("idempotency: encode the headers: %w", err)
	}
	if r.Omitted != "" {
		return string(encoded), nil, r.Omitted, nil
	}
	if body = r.Body; body == nil {
		body = []byte{} // NULL would mean that it was not kept
	}
	return string(encoded), body, nil, nil
}
