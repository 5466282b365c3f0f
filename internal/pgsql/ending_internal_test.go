package pgsql

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTextsThatEndATransaction(t *testing.T) {
	for text, ends := range map[string]bool{
		"": false, ";": false, "SELECT 1": false, "BEGIN": false, "SAVEPOINT a": false, "RELEASE a": false, "commitment": false, "ends": false,
		"COMMIT": true, "commit;": true, "EnD": true, "abort work": true, "SELECT 1; ; \n\tCOMMIT AND CHAIN": true,
		"ROLLBACK": true, "rollback;": true, "ROLLBACK WORK": true, "ROLLBACK TRANSACTION AND CHAIN": true, "ROLLBACK AND CHAIN": true,
		"ROLLBACK TO a": false, "rollback work to savepoint a": false, "ROLLBACK TRANSACTION/**/TO a": false, "ROLLBACK -- to a\nAND CHAIN": true,
		"/* a */ ROLLBACK": true, "-- a\nROLLBACK": true, "/* /* ; */ x */ ROLLBACK": true, "/* ROLLBACK": false, "-- ROLLBACK": false,
		"/* ; */ SELECT 1": false, "SELECT '/*'; ROLLBACK AND CHAIN; SELECT '*/'": true, "SELECT '--'; ROLLBACK": true,
		"ROLLBACK TO a; ROLLBACK": true, "ROLLBACK TO a; SELECT 1": false,
		"PREPARE TRANSACTION 'a'": true, "PREPARE a AS SELECT 1": false, "EXECUTE commit": false,
		"ROLLBACK/* to /* a */ */AND CHAIN": true,
	} {
		require.Equal(t, ends, endsTx([]byte(text)), text)
		require.Equal(t, ends, endsTx(append([]byte(text), 0)), "%s, as it is sent", text)
	}
}

// The messages are the same in whatever pieces they come.
func TestMessagesInPieces(t *testing.T) {
	message := func(kind byte, body string) []byte {
		n := len(body) + 4
		return append([]byte{kind, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, body...)
	}
	all := bytes.Join([][]byte{
		message('C', "BEGIN\x00"), message('Z', "T"), message('1', ""), message('D', string(make([]byte, 100))),
		message('C', "INSERT 0 1\x00"), message('C', "COMMIT\x00"), message('C', "BEGIN\x00"), message('Z', "T"),
	}, nil)
	for size := 1; size <= len(all); size++ {
		e := &ending{}
		e.follow(true)
		a := &answers{Reader: bytes.NewReader(all), ending: e}
		for buf := make([]byte, size); ; {
			if _, err := a.Read(buf); errors.Is(err, io.EOF) {
				break
			}
		}
		require.Equal(t, "COMMIT", e.how, size)
	}
}
