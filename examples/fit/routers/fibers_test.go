package routers

import (
	"bufio"
	"net"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	recover2 "github.com/gofiber/fiber/v2/middleware/recover"
	fiber3 "github.com/gofiber/fiber/v3"
	adaptor3 "github.com/gofiber/fiber/v3/middleware/adaptor"
	recover3 "github.com/gofiber/fiber/v3/middleware/recover"
)

// fibers are both versions of Fiber. There is one answer of a request there, which code further out changes as it likes: nothing is written late.
func fibers() []framework {
	late := []string{"written late"}
	return []framework{
		{name: "fiber 2", never: late, serve: func(t *testing.T, _ *service, m Middleware, behave func(native) error) string {
			app := newFiber()
			app.Post("/pay", Fiber(m, fiberHandler(behave)))
			return listen(t, app.Listener)
		}},
		{name: "fiber 2, its adaptor", refused: "httpmw/fasthttpmw", never: late, serve: func(t *testing.T, _ *service, m Middleware,
			behave func(native) error) string {
			app := newFiber()
			app.Post("/pay", adaptor.HTTPMiddleware(m), fiberHandler(behave))
			return listen(t, app.Listener)
		}},
		{name: "fiber 2, net/http behind its adaptor", never: []string{"streamed", "hijacked", "written late"},
			serve: func(t *testing.T, _ *service, m Middleware, behave func(native) error) string {
				app := newFiber()
				app.Post("/pay", adaptor.HTTPHandler(m(plain(behave))))
				return listen(t, app.Listener)
			}},
		{name: "fiber 3", never: late, serve: func(t *testing.T, _ *service, m Middleware, behave func(native) error) string {
			app := newFiber3()
			app.Post("/pay", Fiber3(m, fiber3Handler(behave)))
			return listen(t, quietly(app))
		}},
		{name: "fiber 3, its adaptor", refused: "httpmw/fasthttpmw", never: late, serve: func(t *testing.T, _ *service, m Middleware,
			behave func(native) error) string {
			app := newFiber3()
			app.Post("/pay", adaptor3.HTTPMiddleware(m), fiber3Handler(behave))
			return listen(t, quietly(app))
		}},
	}
}

func newFiber() *fiber.App {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(recover2.New())
	return app
}

func fiberHandler(behave func(native) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		return behave(native{
			ctx: c.UserContext(),
			answer: func(status int) error {
				if status == http.StatusNoContent {
					return c.SendStatus(status)
				}
				return c.Status(status).JSON(fiber.Map{})
			},
			stream: func() error {
				c.Context().SetBodyStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString("{}") })
				return nil
			},
			hijack: func() error {
				c.Context().Hijack(func(conn net.Conn) { _, _ = conn.Write([]byte("{}")) })
				return nil
			},
		})
	}
}

func newFiber3() *fiber3.App {
	app := fiber3.New()
	app.Use(recover3.New())
	return app
}

func quietly(app *fiber3.App) func(net.Listener) error {
	return func(l net.Listener) error { return app.Listener(l, fiber3.ListenConfig{DisableStartupMessage: true}) }
}

func fiber3Handler(behave func(native) error) fiber3.Handler {
	return func(c fiber3.Ctx) error {
		return behave(native{
			ctx: c.Context(),
			answer: func(status int) error {
				if status == http.StatusNoContent {
					return c.SendStatus(status)
				}
				return c.Status(status).JSON(fiber3.Map{})
			},
			stream: func() error {
				c.RequestCtx().SetBodyStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString("{}") })
				return nil
			},
			hijack: func() error {
				c.RequestCtx().Hijack(func(conn net.Conn) { _, _ = conn.Write([]byte("{}")) })
				return nil
			},
		})
	}
}
