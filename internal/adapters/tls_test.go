package adapters_test

import (
	"crypto/tls"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/certtest"
)

// handshake returns the error of the client.
func handshake(t *testing.T, client *tls.Config, serve func(net.Conn)) error {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			serve(conn)
			_ = conn.Close()
		}
	}()
	conn, err := tls.Dial("tcp", listener.Addr().String(), client)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 the answer to the client's certificate comes after the handshake
	return err
}

func TestTLSFaults(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	authority, err := certtest.New(folder, "authority")
	require.NoError(t, err)
	cert, key, err := authority.Issue(folder, "server")
	require.NoError(t, err)
	load := func(settings adapters.TLS) *tls.Config {
		loaded, err := settings.Load()
		require.NoError(t, err)
		return loaded
	}
	server := load(adapters.TLS{Cert: cert, Key: key})
	secure := func(conn net.Conn) { _ = tls.Server(conn, server).Handshake() }

	require.True(t, adapters.IsTLSFault(handshake(t, load(adapters.TLS{}), secure)), "an authority that is not trusted")
	plain := func(conn net.Conn) { _, _ = conn.Write([]byte("AMQP\x00\x00\x09\x01")) }
	require.True(t, adapters.IsTLSFault(handshake(t, load(adapters.TLS{}), plain)), "no TLS")
	trusting := load(adapters.TLS{TrustCerts: authority.CertFile})
	require.False(t, adapters.IsTLSFault(handshake(t, trusting, secure)), "the connection ends, which has nothing to do with TLS")
	require.False(t, adapters.IsTLSFault(errors.New("connection refused")))
	require.False(t, adapters.IsTLSFault(nil))
	asking := server.Clone() // the server of a handshake before may still read its own
	asking.ClientAuth = tls.RequireAnyClientCert
	strict := func(conn net.Conn) { _ = tls.Server(conn, asking).Handshake() }
	require.True(t, adapters.IsTLSFault(handshake(t, trusting, strict)), "no certificate of the client")
}
