package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"
)

// tokenLife is how long a form can be sent after it was shown: a working day.
const tokenLife = 12 * time.Hour

// errToken means that a form was not shown to the actor who sends it, or too long ago.
var errToken = errors.New("the form is older than 12 hours, was shown to somebody else, or comes from a process with another Config.Secret")

// tokens makes and checks what each form carries: the end of its life and a signature over that and the actor. Nothing is stored.
// Another site cannot make one, nor can it use one that an actor of its own was given.
type tokens struct {
	key []byte
}

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

func (t *tokens) sign(life []byte, actor string) []byte {
	mac := hmac.New(sha256.New, t.key)
	mac.Write(life)
	mac.Write([]byte(actor))
	return mac.Sum(nil)
}
