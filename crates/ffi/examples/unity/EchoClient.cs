// Sends messages to an echo server and checks the echoes. The example `echo` is such a server.
//
//   mcs -out:EchoClient.exe crates/ffi/examples/unity/Drumfire.cs crates/ffi/examples/unity/EchoClient.cs
//   MONO_PATH=target/release LD_LIBRARY_PATH=target/release mono EchoClient.exe 127.0.0.1:7777 drumfire_public_...
//
// Exits with 0 if all echoes arrived. In Unity, the body of the loop is the Update method of a MonoBehaviour.

using System;
using Drumfire;

static class EchoClient
{
    const int Messages = 50;
    const int FramesMax = 2000;

    static int Main(string[] args)
    {
        if (args.Length != 2)
        {
            Console.Error.WriteLine("usage: EchoClient.exe ADDRESS PUBLIC_KEY");
            return 1;
        }
        try
        {
            Connect("no address", args[1]);
            return 1;
        }
        catch (DrumfireException error)
        {
            if (error.Status != Status.BadAddress)
            {
                throw;
            }
        }
        using (var client = Connect(args[0], args[1]))
        {
            return Run(client) ? 0 : 1;
        }
    }

    static Client Connect(string server, string key)
    {
        return Client.Connect(new Settings { Server = server, ServerKey = key, ReconnectWithinMs = 5000 });
    }

    static bool Run(Client client)
    {
        var buffer = new byte[600];
        int sent = 0, echoes = 0, receipts = 0;
        client.SetChannel(3, new ChannelOptions { Redundancy = 1 });
        for (var frame = 0; frame < FramesMax; frame++)
        {
            client.Poll(10);
            Event taken;
            while (frame % 2 == 0 ? client.TryReceive(out taken) : client.TryReceive(buffer, out taken))
            {
                switch (taken.Kind)
                {
                    case EventKind.Message:
                        if (taken.Channel != 3 || !IsMessage(echoes, taken))
                        {
                            Console.Error.WriteLine("echo {0} differs from its message", echoes);
                            return false;
                        }
                        echoes += 1;
                        break;
                    case EventKind.Receipt:
                        receipts += taken.Outcome == Outcome.Acknowledged ? 1 : 0;
                        break;
                    case EventKind.ConnectFailed:
                        Console.Error.WriteLine("connect failed: " + taken.Text);
                        return false;
                    case EventKind.Disconnected:
                        Console.WriteLine("{0} echoes, {1} receipts, closed: {2}, {3}", echoes, receipts, Client.Describe(taken.Reason), taken.Text);
                        return echoes == Messages && receipts == Messages && taken.Code == 7;
                }
            }
            if (sent < Messages && sent == echoes)
            {
                var options = new SendOptions { Mode = Mode.ReliableOrdered, Flags = SendFlags.Receipt };
                client.Send(3, Message(sent), (sent + 1) * 12, options);
                sent += 1;
                client.Flush();
            }
            if (receipts == Messages && echoes == Messages && client.State == State.Connected)
            {
                client.Close(7, "done");
            }
        }
        Console.Error.WriteLine("sent {0}, echoes {1}, receipts {2}, state {3}", sent, echoes, receipts, client.State);
        return false;
    }

    static byte[] Message(int number)
    {
        var bytes = new byte[(number + 1) * 12];
        for (var at = 0; at < bytes.Length; at++)
        {
            bytes[at] = (byte)(number + 1);
        }
        return bytes;
    }

    static bool IsMessage(int number, Event taken)
    {
        var expected = Message(number);
        for (var at = 0; at < expected.Length; at++)
        {
            if (at >= taken.BytesCount || taken.Bytes[at] != expected[at])
            {
                return false;
            }
        }
        return taken.BytesCount == expected.Length;
    }
}
