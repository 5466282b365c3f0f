package console

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/oncebox/oncebox/event"
)

// Access is what a request may do.
type Access struct {
	// Actor is the authenticated person or program, in the words of the organisation: a login, an address. It is written to the
	// audit. Required where Read or Act is set; at most 255 bytes.
	Actor string
	// Read lets it see every page, payloads included, of all tenants.
	Read bool
	// Act lets it replay, discard, edit and change what waits. It counts only beside Read.
	Act bool
}

// Authorizer says who sends a request and what it may do. Authentication has been done before, by a middleware or a proxy, or
// is done here: by a session, by [http.Request.BasicAuth], by a header that only the proxy can set. The zero Access is answered
// with 403, an error with 503.
type Authorizer func(*http.Request) (Access, error)

// errRefused is answered with 403.
var errRefused = errors.New("refused")

// ask returns what the request may do, errRefused if that is nothing.
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
