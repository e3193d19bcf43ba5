// Sends messages to a server that answers each with itself, and checks every answer: the example `echo` is such a server.
//
//   mcs -out:EchoClient.exe crates/ffi/examples/unity/Drumfire.cs crates/ffi/examples/unity/EchoClient.cs
//   MONO_PATH=target/release LD_LIBRARY_PATH=target/release mono EchoClient.exe 127.0.0.1:7777 drumfire_public_...
//
// It ends with 0 when every answer came. In Unity the loop's body is a MonoBehaviour's Update.

using System;
using Drumfire;

static class EchoClient
{
    const int Messages = 50;
    const int FramesMax = 2000;

    static int Main(string[] words)
    {
        if (words.Length != 2)
        {
            Console.Error.WriteLine("say EchoClient.exe ADDRESS PUBLIC_KEY");
            return 1;
        }
        try
        {
            Connect("no address", words[1]);
            return 1;
        }
        catch (DrumfireException why)
        {
            if (why.Status != Status.BadAddress)
            {
                throw;
            }
        }
        using (var client = Connect(words[0], words[1]))
        {
            return Play(client) ? 0 : 1;
        }
    }

    static Client Connect(string server, string key)
    {
        return Client.Connect(new Settings { Server = server, ServerKey = key, ReconnectWithinMs = 5000 });
    }

    static bool Play(Client client)
    {
        var buffer = new byte[600];
        int sent = 0, answered = 0, receipts = 0;
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
                        if (taken.Channel != 3 || !IsMessage(answered, taken))
                        {
                            Console.Error.WriteLine("answer {0} is not the message", answered);
                            return false;
                        }
                        answered += 1;
                        break;
                    case EventKind.Receipt:
                        receipts += taken.Outcome == Outcome.Acknowledged ? 1 : 0;
                        break;
                    case EventKind.ConnectFailed:
                        Console.Error.WriteLine("no connection: " + taken.Text);
                        return false;
                    case EventKind.Disconnected:
                        Console.WriteLine("{0} answers, {1} receipts, over: {2}, {3}", answered, receipts, Client.Describe(taken.Reason), taken.Text);
                        return answered == Messages && receipts == Messages && taken.Code == 7;
                }
            }
            if (sent < Messages && sent == answered)
            {
                var options = new SendOptions { Mode = Mode.ReliableOrdered, Flags = SendFlags.Receipt };
                client.Send(3, Message(sent), (sent + 1) * 12, options);
                sent += 1;
                client.Flush();
            }
            if (receipts == Messages && answered == Messages && client.State == State.Connected)
            {
                client.Close(7, "done");
            }
        }
        Console.Error.WriteLine("sent {0}, answered {1}, receipts {2}: {3}", sent, answered, receipts, client.State);
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
