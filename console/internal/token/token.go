// Package token protects the forms of the console against forged requests (CSRF).
package token

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"
)

// Life is how long a form can be sent after it was shown: 12 hours, a working day.
const Life = 12 * time.Hour

// ErrInvalid means that the form was not shown to this actor, or too long ago.
var ErrInvalid = errors.New("the form is older than 12 hours, was shown to somebody else, or comes from a process with another Config.Secret")

// Tokens makes and checks the token in each form: when it ends, and a signature over that and the actor. Nothing is stored. Another site cannot make
// a token, and a token that was made for another actor is refused.
type Tokens struct {
	key []byte
}

// New derives a key from the secret and a fixed text. A secret that also signs something else gives no signature that fits here.
func New(secret []byte) *Tokens {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("oncebox console forms"))
	return &Tokens{key: mac.Sum(nil)}
}

// Make returns a token for an actor.
func (t *Tokens) Make(actor string, now time.Time) string {
	var life [8]byte
	binary.BigEndian.PutUint64(life[:], uint64(now.Add(Life).Unix())) //nolint:gosec // after 1970
	return base64.RawURLEncoding.EncodeToString(append(life[:], t.sign(life[:], actor)...))
}

// Check returns [ErrInvalid] for a token that was not made for the actor, or is too old. It compares in constant time (hmac.Equal), so the time of a
// refusal reveals nothing about the right signature.
func (t *Tokens) Check(token, actor string, now time.Time) error {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) != 8+sha256.Size {
		return ErrInvalid
	}
	life := raw[:8]
	if !hmac.Equal(raw[8:], t.sign(life, actor)) || now.Unix() > int64(binary.BigEndian.Uint64(life)) { //nolint:gosec // it is one of ours
		return ErrInvalid
	}
	return nil
}

// sign needs no separator between the parts: the time always has eight bytes, and the actor is the rest.
func (t *Tokens) sign(life []byte, actor string) []byte {
	mac := hmac.New(sha256.New, t.key)
	mac.Write(life)
	mac.Write([]byte(actor))
	return mac.Sum(nil)
}
