package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"time"

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

// tokenLife is how long a form can be sent after it was shown: 12 hours, a working day.
const tokenLife = 12 * time.Hour

// errToken means that the form was not shown to this actor, or too long ago.
var errToken = errors.New("the form is older than 12 hours, was shown to somebody else, or comes from a process with another Config.Secret")

// tokens makes and checks the token in each form: when it ends, and a signature over that and the actor. Nothing is stored. Another site cannot make
// a token, and a token that was made for another actor is refused. This protects against forged requests (CSRF).
type tokens struct {
	key []byte
}

// newTokens derives its key from the secret and a fixed text. A secret that also signs something else gives no signature that fits here.
func newTokens(secret []byte) *tokens {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("oncebox console forms"))
	return &tokens{key: mac.Sum(nil)}
}

func (t *tokens) make(actor string, now time.Time) string {
	var life [8]byte
	binary.BigEndian.PutUint64(life[:], uint64(now.Add(tokenLife).Unix())) //nolint:gosec // after 1970
	return base64.RawURLEncoding.EncodeToString(append(life[:], t.sign(life[:], actor)...))
}

// check compares in constant time (hmac.Equal), so the time of a refusal reveals nothing about the right signature.
func (t *tokens) check(token, actor string, now time.Time) error {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) != 8+sha256.Size {
		return errToken
	}
	life := raw[:8]
	if !hmac.Equal(raw[8:], t.sign(life, actor)) || now.Unix() > int64(binary.BigEndian.Uint64(life)) { //nolint:gosec // it is one of ours
		return errToken
	}
	return nil
}

// sign needs no separator between the parts: the time always has eight bytes, and the actor is the rest.
func (t *tokens) sign(life []byte, actor string) []byte {
	mac := hmac.New(sha256.New, t.key)
	mac.Write(life)
	mac.Write([]byte(actor))
	return mac.Sum(nil)
}
