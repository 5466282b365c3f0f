package encryption

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"strings"
	"time"

	"github.com/oncebox/oncebox/event"
)

// key is one generation of a tenant's key.
type key struct {
	id    string
	aead  cipher.AEAD
	until time.Time // when it has to be looked up again
}

// newKey makes an AES-GCM cipher that puts a random nonce in front of each payload. Rotate the key before
// four billion events.
func newKey(id string, secret []byte, until time.Time) (*key, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &key{id: id, aead: aead, until: until}, err
}

// Seal encrypts the payload with the tenant's current key.
func (k *Keys) Seal(ctx context.Context, env *event.Envelope) (sealed []byte, keyID string, err error) {
	key, err := k.current(ctx, env.TenantID)
	if err != nil {
		return nil, "", err
	}
	return key.aead.Seal(nil, nil, env.Payload, bound(env)), key.id, nil //nolint:gosec // NewGCMWithRandomNonce makes the nonce
}

// Open decrypts the payload with the key that has sealed it, also if that is not the current one.
func (k *Keys) Open(ctx context.Context, env *event.Envelope, keyID string) ([]byte, error) {
	key, err := k.byID(ctx, keyID)
	if err != nil {
		return nil, err
	}
	payload, err := key.aead.Open(nil, nil, env.Payload, bound(env))
	if err != nil { // changed, or taken from another event: that is permanent
		return nil, &event.DecodeError{Type: env.Type, Version: env.SchemaVersion, Err: err}
	}
	return payload, nil
}

// bound returns the data to which the payload is tied. Identifiers never contain NUL, so different events
// have different data.
func bound(env *event.Envelope) []byte {
	return []byte(strings.Join([]string{env.ID, env.TenantID, env.Type}, "\x00"))
}
