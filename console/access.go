package console

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/oncebox/oncebox/event"
)

// Access is what the sender of a request may do.
type Access struct {
	// Actor is the login or address of the authenticated person or program, as the organisation writes it. The audit stores it. Required
	// with Read or Act; at most 255 bytes.
	Actor string
	// Read permits all pages, for all tenants, with payloads.
	Read bool
	// Act permits replaying, discarding, editing and changing what waits. It has no effect without Read.
	Act bool
}

// Authorizer returns who sends a request and what they may do. A middleware or proxy may have authenticated the sender before, or the Authorizer does
// so: by a session, by [http.Request.BasicAuth], or by a header that only the proxy can set. The zero Access is answered with 403, an error with 503.
type Authorizer func(*http.Request) (Access, error)

// errRefused is the error of a request that may do nothing. The answer is 403.
var errRefused = errors.New("refused")

// ask calls the Authorizer and returns what the sender may do, or errRefused if that is nothing.
func (c *Console) ask(r *http.Request) (Access, error) {
	a, err := c.authorize(r)
	if err != nil {
		return Access{}, fmt.Errorf("console: the Authorizer: %w", err)
	}
	if !a.Read {
		return Access{}, errRefused
	}
	if a.Actor == "" {
		return Access{}, errors.New("console: the Authorizer allows a request and names no Actor: set Access.Actor")
	}
	if err := event.ValidateIdentifier("Access.Actor", a.Actor); err != nil {
		return Access{}, fmt.Errorf("console: the Authorizer: %w", err)
	}
	a.Act = a.Act && !c.cfg.ReadOnly
	return a, nil
}
