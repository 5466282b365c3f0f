package devenv

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// verifier returns what PostgreSQL stores for a password (RFC 5803; PostgreSQL 53.8, pg_authid), with one iteration. A
// random password needs no more. The usual 4,096 iterations would cost a client 8 ms of CPU time for each connection
// under the race detector, in tests that open thousands.
func verifier(password string) string {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // documented to return no error
	salted, err := pbkdf2.Key(sha256.New, password, salt, 1, sha256.Size)
	if err != nil {
		panic(err) // cannot happen: the sizes are constants
	}
	keyed := func(name string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(name))
		return mac.Sum(nil)
	}
	stored := sha256.Sum256(keyed("Client Key"))
	text := base64.StdEncoding.EncodeToString
	return "SCRAM-SHA-256$1:" + text(salt) + "$" + text(stored[:]) + ":" + text(keyed("Server Key"))
}
